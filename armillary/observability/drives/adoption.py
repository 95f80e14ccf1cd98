"""How people take these techniques into use."""

HOW = (
    "Fit once with `armillary drives fit LOG --out drives.npz`, score every night with `armillary drives score LOG --model drives.npz`, and"
    " replace the drives that are flagged."
)
