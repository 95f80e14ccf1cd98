"""Files that describe parameters: headers of safetensors files, and rules for blocks."""
