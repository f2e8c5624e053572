"""Timer messages: delivery at any time (TimerMessageStore)."""
