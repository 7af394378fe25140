"""The account of a card: what was promised, predicted and measured, and what each holder has of it now."""
