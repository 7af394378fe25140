"""What happened on the cards: the recording of an exporter, the events that follow from it, and how they are shown."""
