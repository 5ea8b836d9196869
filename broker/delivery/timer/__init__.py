"""Timer messages: they wait on the timer wheel until their requested time."""
