import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTCatalogProperties.SnapshotMode;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.RegisterTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.JsonAutoDetect;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.PropertyAccessor;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.PropertyNamingStrategies;

/** Iceberg's own handlers of its REST protocol over a catalog in SQLite: {@code RestCatalogServer FOLDER TOKEN}. */
public class RestCatalogServer {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static JdbcCatalog catalog;
  private static String token;

  public static void main(String[] arguments) throws IOException {
    JSON.setVisibility(PropertyAccessor.FIELD, JsonAutoDetect.Visibility.ANY);
    JSON.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    JSON.setPropertyNamingStrategy(new PropertyNamingStrategies.KebabCaseStrategy());
    RESTSerializers.registerAll(JSON);
    token = arguments[1];
    catalog = new JdbcCatalog();
    catalog.setConf(new Configuration());
    catalog.initialize("rest", Map.of(
        "uri", "jdbc:sqlite:" + arguments[0] + "/catalog.db", "jdbc.schema-version", "V1", "clients", "1",
        "warehouse", arguments[0] + "/warehouse"));
    HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 16);
    server.setExecutor(Executors.newFixedThreadPool(4));
    server.createContext("/", RestCatalogServer::answer);
    server.start();
    System.out.println("port " + server.getAddress().getPort());
  }

  private static void answer(HttpExchange exchange) throws IOException {
    int status = 200;
    Object answer;
    try {
      answer = answer(exchange, exchange.getRequestBody().readAllBytes());
      status = answer == null ? 204 : 200;
    } catch (Exception error) {
      status = status(error);
      answer = ErrorResponse.builder().responseCode(status).withType(error.getClass().getSimpleName())
          .withMessage(String.valueOf(error.getMessage())).build();
    }
    byte[] body = answer == null ? new byte[0] : JSON.writeValueAsBytes(answer);
    exchange.getResponseHeaders().set("Content-Type", "application/json");
    exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
    exchange.getResponseBody().write(body);
    exchange.close();
  }

  private static Object answer(HttpExchange exchange, byte[] body) throws IOException {
    String method = exchange.getRequestMethod();
    String[] path = exchange.getRequestURI().getRawPath().substring(1).split("/");
    if (path.length == 4 && path[1].equals("oauth")) {
      throw new UnsupportedOperationException("no tokens are given here");
    }
    if (!("Bearer " + token).equals(exchange.getRequestHeaders().getFirst("Authorization"))) {
      throw new SecurityException("the token isn't right");
    }
    if (path[1].equals("config")) {
      return Map.of("defaults", Map.of(), "overrides", Map.of("prefix", "here"));
    }
    if (path.length == 3) {
      return CatalogHandlers.createNamespace(catalog, JSON.readValue(body, CreateNamespaceRequest.class));
    }
    Namespace namespace = Namespace.of(decoded(path[3]).split("\u001f"));
    if (path.length == 4) {
      return CatalogHandlers.loadNamespace(catalog, namespace);
    }
    if (path[4].equals("register")) {
      RegisterTableRequest asked = JSON.readValue(body, RegisterTableRequest.class);
      return CatalogHandlers.registerTable(catalog, namespace, asked);
    }
    if (path.length == 5) {
      return CatalogHandlers.listTables(catalog, namespace);
    }
    TableIdentifier table = TableIdentifier.of(namespace, decoded(path[5]));
    if (method.equals("DELETE")) {
      CatalogHandlers.dropTable(catalog, table);
      return null;
    }
    if (method.equals("POST")) {
      return CatalogHandlers.updateTable(catalog, table, JSON.readValue(body, UpdateTableRequest.class));
    }
    return CatalogHandlers.loadTable(catalog, table, SnapshotMode.ALL);
  }

  private static String decoded(String part) {
    return URLDecoder.decode(part.replace("+", "%2B"), StandardCharsets.UTF_8);
  }

  private static int status(Exception error) {
    if (error instanceof SecurityException) {
      return 401;
    }
    if (error instanceof NoSuchTableException || error instanceof NoSuchNamespaceException) {
      return 404;
    }
    if (error instanceof AlreadyExistsException || error instanceof CommitFailedException) {
      return 409;
    }
    return error instanceof ValidationException || error instanceof IllegalArgumentException ? 400 : 500;
  }
}
