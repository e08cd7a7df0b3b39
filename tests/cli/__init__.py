"""The command line does what it says, and says what is wrong."""
