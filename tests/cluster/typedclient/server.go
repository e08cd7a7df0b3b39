package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	asJSON       = "application/json"
	asMergePatch = "application/merge-patch+json"
	asApplyPatch = "application/apply-patch+yaml"
)

// server sends bodies that the caller has encoded, so that each write is spelled as its client spells it.
type server struct {
	http *http.Client
	base string
}

func connect(kubeconfig, namespace string) (*server, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &server{client, config.Host + "/apis/jobset.x-k8s.io/v1alpha2/namespaces/" + namespace + "/jobsets"}, nil
}

func (s *server) send(method, path, contentType string, body, answer any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, s.base+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", contentType)
	response, err := s.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		status := metav1.Status{}
		if json.Unmarshal(text, &status) != nil || status.Message == "" {
			return fmt.Errorf("%s: %s", response.Status, text)
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	return json.Unmarshal(text, answer)
}

func (s *server) get(name string) (*JobSet, error) {
	jobset := &JobSet{}
	return jobset, s.send(http.MethodGet, "/"+name, asJSON, nil, jobset)
}

// change does what client-go's users do: Get, edit, Update. It returns what is stored.
func (s *server) change(name string, edit func(*JobSet)) (*JobSet, error) {
	jobset, err := s.get(name)
	if err != nil {
		return nil, err
	}
	edit(jobset)
	stored := &JobSet{}
	return stored, s.send(http.MethodPut, "/"+name, asJSON, jobset, stored)
}
