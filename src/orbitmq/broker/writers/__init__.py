"""Writers that take over: connections bound to an attempt, and fences that end earlier attempts."""
