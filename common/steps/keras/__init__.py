"""What the recorders of both frameworks need from Keras: its layers, its optimizers and the layout of its weights."""
