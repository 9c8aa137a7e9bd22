import os

def main():
    run()
