# A shell in a session in a shell in a session, each waiting for the next.
setsid sh -c "sh -c \"setsid sh -c 'setsid sleep 100; :'; :\" ; :"
