// informer lists, watches, creates, patches and deletes kinds of a server as client-go does, and
// prints a table as JSON: kind -> verb -> "ok" or the HTTP status of a refusal. It reads from
// standard input what to do: the kubeconfig, the namespace, and a row for each kind.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const patience = 20 * time.Second

type row struct {
	Kind       string         `json:"kind"`
	Group      string         `json:"group"`
	Version    string         `json:"version"`
	Plural     string         `json:"plural"`
	Namespaced bool           `json:"namespaced"`
	Object     map[string]any `json:"object"` // what to create
	Existing   string         `json:"existing"`
	Victim     string         `json:"victim"`
}

type task struct {
	Kubeconfig string `json:"kubeconfig"`
	Namespace  string `json:"namespace"`
	Rows       []row  `json:"rows"`
}

func main() {
	var work task
	if err := json.NewDecoder(os.Stdin).Decode(&work); err != nil {
		fail(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", work.Kubeconfig)
	if err != nil {
		fail(err)
	}
	config.ContentType = "application/vnd.kubernetes.protobuf" // as controllers ask for it
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	plain := *config
	plain.ContentType, plain.AcceptContentTypes = "application/json", ""
	table := map[string]map[string]string{}
	for _, each := range work.Rows {
		table[each.Kind] = played(kubernetes.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(&plain), work.Namespace, each)
	}
	if err := json.NewEncoder(os.Stdout).Encode(table); err != nil {
		fail(err)
	}
}

func played(typed kubernetes.Interface, client dynamic.Interface, namespace string, each row) map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	where := schema.GroupVersionResource{Group: each.Group, Version: each.Version, Resource: each.Plural}
	var objects dynamic.ResourceInterface = client.Resource(where)
	if each.Namespaced {
		objects = client.Resource(where).Namespace(namespace)
	}
	made, err := objects.Create(ctx, &unstructured.Unstructured{Object: each.Object}, metav1.CreateOptions{})
	cells := map[string]string{"create": cell(err)}
	name := each.Existing
	if err == nil {
		name = made.GetName()
	}
	listed, err := objects.List(ctx, metav1.ListOptions{Limit: 500})
	cells["list"] = cell(err)
	if err == nil && name != "" && !slices.ContainsFunc(listed.Items, func(found unstructured.Unstructured) bool { return found.GetName() == name }) {
		cells["list"] = name + " is missing"
	}
	cells["watch"] = informed(typed, client, where, namespace, each, name)
	patched := name
	if patched == "" {
		patched = "nobody"
	}
	_, err = objects.Patch(ctx, patched, types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"yes"}}}`), metav1.PatchOptions{})
	cells["patch"] = cell(err)
	victim := each.Victim
	if victim == "" {
		victim = patched
	}
	cells["delete"] = cell(objects.Delete(ctx, victim, metav1.DeleteOptions{}))
	return cells
}

// informed starts an informer, typed where client-go knows the kind, and waits until its store has
// what is there.
func informed(typed kubernetes.Interface, client dynamic.Interface, where schema.GroupVersionResource, namespace string, each row, name string) string {
	stop := make(chan struct{})
	defer close(stop)
	scope := metav1.NamespaceAll
	if each.Namespaced {
		scope = namespace
	}
	var found cache.SharedIndexInformer
	if where.Group == "" {
		factory := informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace(scope))
		generic, err := factory.ForResource(where)
		if err != nil {
			return err.Error()
		}
		found = generic.Informer()
	} else {
		found = dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, scope, nil).ForResource(where).Informer()
	}
	told := make(chan string, 1000)
	_, err := found.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if seen, ok := obj.(metav1.Object); ok {
			if node, ok := obj.(*corev1.Node); ok && node.Status.NodeInfo.OperatingSystem == "" {
				return // it was not read
			}
			told <- seen.GetName()
		}
	}})
	if err != nil {
		return err.Error()
	}
	go found.Run(stop)
	deadline := time.After(patience)
	for !found.HasSynced() {
		select {
		case <-deadline:
			return "never synced"
		case <-time.After(20 * time.Millisecond):
		}
	}
	for name != "" {
		select {
		case seen := <-told:
			if seen == name {
				return "ok"
			}
		case <-deadline:
			return name + " was never told"
		}
	}
	return "ok"
}

func cell(err error) string {
	if err == nil {
		return "ok"
	}
	var refused apierrors.APIStatus
	if errors.As(err, &refused) {
		return strconv.Itoa(int(refused.Status().Code))
	}
	return err.Error()
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "informer:", err)
	os.Exit(1)
}
