"""What a transformer is made of: its `config.json`, the families that spell it, and every tensor of every layer."""
