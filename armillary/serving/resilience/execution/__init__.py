"""A real small transformer that is sharded over ranks and survives the loss of one."""
