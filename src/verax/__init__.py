"""verax."""
