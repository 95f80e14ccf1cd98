"""How people take these techniques into use, and on which machines the question arises."""

HOW = "Call `compress` and `decompress` of armillary.compression.fields, or name the codec `armillary.fz` in Zarr, numcodecs or HDF5."
