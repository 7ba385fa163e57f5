// Empty: lets semaphore.go declare functions without bodies.
