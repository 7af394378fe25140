"""The cluster: connecting to it, reading what runs there, and what is wrong with it."""
