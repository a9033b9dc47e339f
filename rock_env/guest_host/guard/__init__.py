"""What guards the Pythons of a grade: copied into boxes one by one, and run there by whatever Python a box has."""
