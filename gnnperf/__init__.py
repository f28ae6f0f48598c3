"""How long will this network take on that device, and where does the time go?"""
