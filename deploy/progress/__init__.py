"""What a run shows while it goes: terminal, plain lines, TensorBoard, pictures."""
