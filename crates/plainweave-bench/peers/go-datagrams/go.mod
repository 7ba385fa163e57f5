module peer

go 1.21
