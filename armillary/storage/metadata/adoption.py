"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Use `MetadataStore` on a byte-addressable device, or on an ordinary file."
