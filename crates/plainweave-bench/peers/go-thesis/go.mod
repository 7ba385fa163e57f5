module plainweave.invalid/peer

go 1.22
