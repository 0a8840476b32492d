package inventory

const (
	pageBytes = 6128 // Redis stores such a page in 6,144 bytes
	maxHeight = 32   // of a tree; a damaged head must not make a reader go deeper
)
