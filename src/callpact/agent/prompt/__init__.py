"""The parts of a prompt beside the user's message: instructions, skills, memory."""
