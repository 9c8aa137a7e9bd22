def f():
    one()
    for x in y:
        two(x)
