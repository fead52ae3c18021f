-- The store's time.
return now()
