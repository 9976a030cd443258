"""Thin Ray shells around the other rooms, and the controller that connects them."""
