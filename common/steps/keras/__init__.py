"""What the recorders of both frameworks ask of Keras: its layers, its optimizers and the layout of its weights."""
