"""The messages that a model is given beside the question: instructions, skills, memory."""
