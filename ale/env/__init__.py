"""`ale env`: environments, from a new folder to one that is trained in."""
