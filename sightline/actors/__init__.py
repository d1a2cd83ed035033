"""The actors: session, workspace, dispatcher, and the services they share. Speak to the world through ports."""
