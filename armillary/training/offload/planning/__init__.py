"""How techniques decide what moves: size classes of buffers, the sliding window, caches, and buckets."""
