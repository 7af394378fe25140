"""Stands in for another version of the agent."""
