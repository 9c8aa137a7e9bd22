kill -STOP $$
