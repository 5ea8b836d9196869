"""What all parts of the SDK use: errors, checks of arguments, settings, names, clocks, and the loop of the blocking
classes. Modules here import no other folder of the SDK."""
