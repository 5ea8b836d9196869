"""What each request code needs."""
