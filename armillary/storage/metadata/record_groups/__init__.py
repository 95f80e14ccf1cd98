"""MDSec's layout: records of one size, in groups that belong to one directory."""
