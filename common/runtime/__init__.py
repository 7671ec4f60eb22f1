"""HOW a run happens: check the request, start the processes, watch them, collect what they leave."""
