"""The cluster: connecting to it, looking at what runs there, and saying what is wrong with it."""
