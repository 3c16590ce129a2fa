"""Shows operators how the service is doing (figures, Redis's health), and does to jobs what they ask for."""
