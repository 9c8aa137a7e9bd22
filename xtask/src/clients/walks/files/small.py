import markupsafe


def main():
    print(markupsafe.escape("<small>"))
