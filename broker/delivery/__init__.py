"""Who gets what and when: parked pulls and the arrivals that wake them."""
