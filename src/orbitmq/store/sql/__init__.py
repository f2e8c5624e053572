"""SQL92 expressions over the properties of messages: read, compiled to numbers, matched against stored
bytes."""
