"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Call `tall_qr`, `lstsq` or `tall_svd` of armillary.numerics.qr on NumPy, CuPy or PyTorch arrays."
