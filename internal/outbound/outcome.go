package outbound

import "net/http"

// An Outcome classifies the result of a request.
type Outcome uint8

const (
	Success Outcome = iota
	Gone            // 410
	ClientError
	ServerError
	Redirect
	Timeout
	Unreachable
	RefusedAddress
	TLS
	Other
	Outcomes // number of outcomes
)

var outcomeNames = [Outcomes]string{
	"success", "gone", "client_error", "server_error", "redirect",
	"timeout", "unreachable", "refused_address", "tls", "other",
}

// String returns the name of the outcome in metrics.
func (o Outcome) String() string { return outcomeNames[o] }

// StatusOutcome returns the outcome of a response with the given status.
func StatusOutcome(status int) Outcome {
	switch {
	case status == http.StatusGone:
		return Gone
	case status >= 200 && status <= 299:
		return Success
	case status >= 300 && status <= 399:
		return Redirect
	case status >= 400 && status <= 499:
		return ClientError
	case status >= 500 && status <= 599:
		return ServerError
	}
	return Other
}
