"""Files of a run folder: written by one process, whole after every write, and known by their digests."""
