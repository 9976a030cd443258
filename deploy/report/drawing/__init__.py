"""Numbers as inline SVG, by matplotlib."""
