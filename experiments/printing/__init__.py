"""What people and programs read of results: tables, text, formats."""
