"""The video backend of one of several servers: finds inputs that other servers hold, and uses them there."""
